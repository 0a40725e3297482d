"""What one worker must do, given the job's state."""
