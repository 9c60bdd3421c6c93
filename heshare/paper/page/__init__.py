"""The page that `make figures` ends with: `index.html`, and the executed notebooks as HTML."""
