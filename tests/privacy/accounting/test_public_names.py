from __future__ import annotations

import inspect
import subprocess
import sys

import expunge.privacy.accounting


def test_all_is_exact():
    names = {
        name
        for name, value in vars(expunge.privacy.accounting).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(expunge.privacy.accounting.__all__) == names
    assert sorted(expunge.privacy.accounting.__all__) == list(expunge.privacy.accounting.__all__)


def test_importing_does_not_load_dp_accounting():
    program = "import sys, expunge.privacy.accounting; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
