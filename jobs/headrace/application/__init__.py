"""The program that a task of Airflow runs, alone in its folder: Python searches the folder of a program first."""
