"""Training, trials and comparisons in virtual time: `given` reads inputs, `trials` plays them, `picture` draws."""
