"""The page of results, `index.html`, and the executed notebooks as HTML."""
