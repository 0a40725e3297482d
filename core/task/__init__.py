"""One task under one grant, and the commits of the worker that runs it."""
