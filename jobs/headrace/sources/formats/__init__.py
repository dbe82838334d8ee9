"""Where formats of files were up to 0.2: what others import from here is in ``headrace.ext.formats``."""

from headrace.moved import moved_modules

moved_modules(__name__)
