"""What a pipeline means, in words: pure, for people who check a pipeline before it runs."""
