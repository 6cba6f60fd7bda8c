"""The driver: claims due runs, works on each to its next resting place, and hands back what it cannot finish."""
