"""What an embedding is worth: measures, against exact metrics, on stored data, in pictures."""
