"""What is fast, measured: each benchmark prints ratios against a baseline in the same run."""
