"""What is published: studies, figures, claims, notebooks, the results page, reference results."""
