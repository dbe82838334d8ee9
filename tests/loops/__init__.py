"""Loops: the model beside plain computations over all edges, at random and over real data."""
