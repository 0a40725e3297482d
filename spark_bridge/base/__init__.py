"""What the whole bridge knows: its errors, where they come from, and work that no loop waits for."""
