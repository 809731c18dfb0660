"""The arena: methods and baselines on named instances, in one table with the information limit beside
them."""
