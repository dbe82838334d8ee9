"""What ``hr.open`` gives: the pipelines under a root, their results, and a method for each command."""
