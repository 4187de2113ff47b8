"""What SECURITY.md promises; promises that other tests hold are named here.

Remote code: tests/models/test_pretrained.py. Pickled weights, and what is fetched: tests/hub/test_locate.py. The
template: tests/hub/test_tokenizer.py. File names: tests/commands/test_record.py and tests/test_files.py. Scripts in a
page: tests/test_show.py and tests/commands/test_report.py. Files of others: tests/test_files.py,
tests/bench/test_run_folder.py and tests/commands/test_export_head.py. Pipes: tests/test_cli_refusals.py. The wheel's
checksum: tests/hub/test_default_model.py. Literals in specs: tests/test_specs.py. What is compiled and loaded:
tests/models/llama/test_compiled.py.
"""

import ast
import re
from ipaddress import ip_address
from pathlib import Path
from socket import gethostbyname

from jupyter_client.manager import KernelManager
from jupyter_server.serverapp import ServerApp

ROOT = Path(__file__).parents[1]
NEVER = {"pickle", "marshal", "shelve", "dill", "joblib", "socket", "socketserver", "http", "urllib", "requests",
         "httpx", "aiohttp", "asyncio", "flask", "fastapi", "xmlrpc"}
CALLS = {"eval", "exec", "compile", "__import__"}


def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "specdec_lib").rglob("*.py")}


def imported(node) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    return {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()


ALLOWED = {("schedules/workers.py", "pickle")}     # between a process and its own fork, over a pipe that has no name


def test_the_package_neither_unpickles_nor_opens_a_socket_nor_evaluates_text():
    broken = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            broken += [f"{path.name} imports {name}" for name in imported(node) & NEVER
                       if (path.relative_to(ROOT / "specdec_lib").as_posix(), name) not in ALLOWED]
            if isinstance(node, ast.Call):
                named = node.func.id if isinstance(node.func, ast.Name) else ""
                of_torch = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in ("torch.load", "np.load")
                broken += [f"{path.name} calls {ast.unparse(node.func)}"] * (named in CALLS or of_torch)
    assert not broken


def test_kernels_and_jupyterlab_listen_on_the_loopback_interface():
    for host in (KernelManager().ip, ServerApp().ip):
        assert ip_address(gethostbyname(host)).is_loopback


def test_the_files_that_the_page_names_exist_and_the_readme_links_it():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:hub|models|tests)/[\w/]+\.py|constraints\.txt)`", page)
    assert len(named) >= 4
    assert not [name for name in named if not ((ROOT / name).is_file() or (ROOT / "specdec_lib" / name).is_file())]
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
