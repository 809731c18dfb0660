"""Statistics: confidence radii, Fisher's exact test, intervals, limits and bounds."""
