"""What readers see: publish moves it forward, promotion replaces it."""
