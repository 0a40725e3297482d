"""What users declare with: the app, its streams and their verbs."""
