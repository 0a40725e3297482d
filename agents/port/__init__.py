"""The port: what the runtime needs of its surroundings, as interfaces, and what happens when a request gets no answer."""
