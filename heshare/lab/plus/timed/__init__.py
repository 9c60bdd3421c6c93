"""The improved scheduler within a time: deadlines, first plans in milliseconds, and the search that keeps a budget."""
