"""`millrace doctor`: each probe tries the thing itself, in a scratch namespace or folder, and leaves nothing behind."""
