"""What the machines of workers saw and decided, kept on disk: written, read, kept, and replayed."""
