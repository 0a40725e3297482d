"""From a command to a process, and what is asked of a job from outside of it."""
