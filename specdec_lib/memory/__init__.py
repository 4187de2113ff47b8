"""What outlives a prompt: values and answers that later decodes may use."""
