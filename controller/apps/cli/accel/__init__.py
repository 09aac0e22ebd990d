"""`millrace accel`: CPU, accelerator or switch for each operator of a job, before it runs."""
