"""Training, trying and comparing in virtual time: `given` reads inputs, `trials` plays them, `picture` draws."""
