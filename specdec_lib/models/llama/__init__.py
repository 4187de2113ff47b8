"""Our own decoder of the Llama family: cache rows, packed weights, static shapes."""
