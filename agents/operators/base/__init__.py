"""What all operators are: their base class, the task as they see it, the line of the user's code, and what chunks add to states."""
