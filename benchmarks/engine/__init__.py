"""Time and memory of a network against document length, by attention, engine and precision."""
