"""Figures of many values: sliding windows, quantile sketches, rates, and columns of them."""
