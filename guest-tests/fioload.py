"""fio that verifies in a guest, in repeated runs until it is told to stop."""

import threading
from pathlib import Path

import fioresult
from guest import GuestError

VERIFY = Path(__file__).resolve().parent / "faults" / "verify.fio"


class Load(threading.Thread):
    """Runs fio repeatedly. `runs` counts the runs and `verified` the compared reads. The load ends at the first of its
    `problems`.

    A run may take `timeout` seconds.
    """

    def __init__(self, guest, timeout=120):
        super().__init__(name="load")
        self._guest, self._timeout, self._end = guest, timeout, threading.Event()
        self._job = VERIFY.read_text()
        self.runs, self.verified, self.problems = 0, 0, []

    def run(self):
        try:
            while not self._end.is_set() and not self.problems:
                self.runs += 1
                job = self._job.replace("@SEED@", str(self.runs))
                result = self._guest.run_job(f"verify-{self.runs}", job, self._timeout)
                self.problems += fioresult.problems(result)
                self.verified += sum(row["verified"] or 0 for row in fioresult.rows(result))
        except GuestError as error:
            self.problems.append(str(error))

    def end(self):
        """Ends the load. Returns when the run under way is over."""
        self._end.set()
        self.join()
