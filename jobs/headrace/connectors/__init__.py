"""Systems that records come from and go to, a folder each; nobody imports them, `built_in` names them."""
