"""Where the class of topics was: triggers that Airflow has stored name it so."""

from headrace.moved import moved_modules

moved_modules(__name__)
