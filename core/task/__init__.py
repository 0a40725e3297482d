"""One task under one grant."""
