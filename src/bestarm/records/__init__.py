"""The record of a run, its verification, and its verdict in words."""
