"""What is decided: the two stages of HeShare (Sections III-B and III-C) and the Pareto front they give."""
