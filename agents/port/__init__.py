"""What the runtime needs of the world, as an interface, and what becomes of a question that is not answered."""
