"""What a worker says over HTTP."""
