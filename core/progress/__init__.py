"""How far each stream is: the frames that say so, and what follows from what all producers have said."""
