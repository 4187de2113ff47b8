"""What persists across prompts: values and answers that later decodes may use."""
