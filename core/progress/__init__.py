"""The progress of each stream: the frames that report it, and what follows from the reports of all producers."""
