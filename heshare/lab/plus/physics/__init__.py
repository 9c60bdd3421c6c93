"""The roofline predictor with learned residuals, which goes beyond the paper's random forest."""
