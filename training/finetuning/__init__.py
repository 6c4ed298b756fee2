"""Fine-tuning of imported encoders: `longdoc train --from`."""
