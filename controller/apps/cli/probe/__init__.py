"""`millrace probe`: actual performance of compute centres, measured by probe tasks."""
