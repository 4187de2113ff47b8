"""What transformers loads from the folder `integrations`; see `specdec_lib/integrations/transformers.py`."""
