"""A program that needs a database for itself most of the time, as a backup or a report may.

`hold_database.py DATABASE SECONDS` takes the lock for writing for so long, again and again, and
leaves others an eighth of a second in between.
"""

import sqlite3
import sys
import time


def main():
    path, seconds = sys.argv[1:]
    database = sqlite3.connect(path, timeout=180, isolation_level=None)
    while True:
        database.execute("BEGIN IMMEDIATE")
        time.sleep(float(seconds))
        database.execute("ROLLBACK")
        time.sleep(1 / 8)


main()
