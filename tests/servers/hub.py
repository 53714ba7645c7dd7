"""A local server that speaks the Hub's protocol for data sets: repositories, uploads, commits, tags, downloads.

    python -m tests.servers.hub --folder /tmp/hub --port 0

prints `port=N` once it listens; clients find it through `HF_ENDPOINT`. Repositories and their files are kept in the
folder. With `--xet`, files go to a store of Xet chunks in `FOLDER/xet` on this disk, which shows what deduplication
saves; they can then not be downloaded again.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

LARGE = (".parquet", ".wav", ".flac", ".mp3", ".bin", ".tar")
MOST_REGULAR_BYTES = 10_000_000
PAGE = 40  # entries of a tree that one answer lists; small, so that clients must ask on
WRITER, READER = "hf_writer", "hf_reader"

Harm = Callable[[str, str, int], None]
Handler = Callable[[web.Request], Any]
Tree = dict[str, dict[str, Any]]


class HubServer:
    """The server's state and handlers. `with HubServer(folder) as hub:` serves from a thread of its own.

    Attributes:
        asked: how often each kind of request came (`create_repo`, `refs`, `tree`, `preupload`, `put`, `commit`, …).
        put_bytes: bytes of large files that clients sent.
        harm: called as `harm(kind, "before" | "after", n)` around the n-th request of a kind; may kill the client.
        refuse: status codes that requests of a kind are answered with.
        during: called once before the next request of a kind is handled, such as a writer who is faster.
    """

    def __init__(self, folder: Path, *, xet: bool = False) -> None:
        self.folder, self.xet = folder, xet
        self.port = 0
        self.asked: Counter[str] = Counter()
        self.put_bytes = 0
        self.harm: Harm = lambda kind, when, n: None
        self.refuse: dict[str, int] = {}
        self.during: dict[str, Callable[[], None]] = {}
        (folder / "objects").mkdir(parents=True, exist_ok=True)
        self.collections: dict[str, dict[str, Any]] = {}
        state = folder / "repos.json"
        self.repos: dict[str, dict[str, Any]] = json.loads(state.read_text()) if state.is_file() else {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._up = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    @property
    def endpoint(self) -> str:
        """What `HF_ENDPOINT` should hold."""
        return f"http://127.0.0.1:{self.port}"

    def commits(self, repo: str) -> list[dict[str, Any]]:
        """The commits of `main`, newest first."""
        held, found = self.repos[repo], []
        oid = held["branches"]["main"]
        while oid:
            found.append(held["commits"][oid])
            oid = found[-1]["parent"]
        return found

    def files(self, repo: str, revision: str = "main") -> Tree:
        """The tree of a revision: what each path holds."""
        held = self.repos[repo]
        tree: Tree = held["commits"][self._oid(held, revision)]["tree"]
        return tree

    def add_commit(self, repo: str, changes: dict[str, bytes | None], title: str = "edited by hand") -> str:
        """Commit small files to `main` as another writer would; None deletes. Returns the commit's id."""
        tree = dict(self.files(repo))
        for path, content in changes.items():
            tree.pop(path, None)
            if content is not None:
                tree[path] = self._keep(content)
        return self._commit(self.repos[repo], title, tree)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 32)
        repo, api = "{repo:[^/]+/[^/]+}", "/api/datasets/{repo:[^/]+/[^/]+}"
        routes: list[tuple[str, str, str, Handler, bool]] = [
            ("POST", "/api/repos/create", "create_repo", self.create_repo, True),
            ("POST", "/api/validate-yaml", "validate_yaml", self.validate_yaml, False),
            ("GET", f"{api}/refs", "refs", self.refs, False),
            ("GET", f"{api}/tree/{{rev}}", "tree", self.tree, False),
            ("GET", f"{api}/tree/{{rev}}/{{path:.+}}", "tree", self.tree, False),
            ("POST", f"{api}/paths-info/{{rev}}", "paths_info", self.paths_info, False),
            ("GET", f"{api}/commits/{{rev}}", "commits", self.list_commits, False),
            ("GET", f"{api}/xet-write-token/{{rev}}", "xet_token", self.xet_token, True),
            ("POST", f"{api}/preupload/{{rev}}", "preupload", self.preupload, True),
            ("POST", f"{api}/commit/{{rev}}", "commit", self.commit, True),
            ("POST", f"{api}/tag/{{rev}}", "tag", self.tag, True),
            ("PUT", f"{api}/settings", "settings", self.settings, True),
            ("POST", f"{api}/branch/{{rev}}", "branch", self.branch, True),
            ("GET", f"{api}/revision/{{rev}}", "info", self.info, False),
            ("GET", api, "info", self.info, False),
            ("POST", f"/datasets/{repo}.git/info/lfs/objects/batch", "lfs_batch", self.lfs_batch, True),
            ("PUT", f"/lfs/{repo}/{{oid}}", "put", self.put, False),
            ("POST", "/api/collections", "create_collection", self.create_collection, True),
            ("GET", "/api/collections/{slug:.+}", "collection", self.get_collection, False),
            ("POST", "/api/collections/{slug:[^/]+/[^/]+}/items", "add_item", self.add_item, True),
            ("GET", f"/datasets/{repo}/resolve/{{rev}}/{{path:.+}}", "resolve", self.resolve, False),
        ]
        for method, path, kind, handler, writes in routes:
            app.router.add_route(method, path, self._met(kind, handler, writes))
            if kind == "resolve":
                app.router.add_route("HEAD", path, self._met(kind, handler, writes))
        return app

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", self.port).start())
        self.port = runner.addresses[0][1]
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _met(self, kind: str, handler: Handler, writes: bool) -> Handler:
        """A handler with rights, counts, faults and the Hub's error headers around it."""

        async def met(request: web.Request) -> web.StreamResponse:
            self.asked[kind] += 1
            n = self.asked[kind]
            self.harm(kind, "before", n)
            if meanwhile := self.during.pop(kind, None):
                meanwhile()
            try:
                if kind in self.refuse:
                    raise Refused(self.refuse[kind], "", "out of order")
                self._admit(request, writes)
                response: web.StreamResponse = await handler(request)
            except Refused as refused:
                headers = {"X-Error-Message": refused.text} | ({"X-Error-Code": refused.code} if refused.code else {})
                response = web.json_response({"error": refused.text}, status=refused.status, headers=headers)
            self._save()
            self.harm(kind, "after", n)
            return response

        return met

    def _admit(self, request: web.Request, writes: bool) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in (WRITER, READER):
            raise Refused(401, "", "Invalid credentials in Authorization header")
        if writes and not token:
            raise Refused(401, "", "Invalid username or password.")
        name = request.match_info.get("repo")
        if name is not None:
            repo = self.repos.get(name)
            signed = request.method == "PUT"  # an address that was given to one who may write
            if repo is None or (repo["private"] and not token and not signed):
                raise Refused(404 if token else 401, "RepoNotFound", "Repository not found")
        if writes and token == READER:
            raise Refused(403, "", "Your token has no write access")

    async def create_collection(self, request: web.Request) -> web.Response:
        """A new collection; one of an owner's title is there once."""
        wanted = await request.json()
        slug = f"{wanted['namespace']}/{wanted['title'].lower().replace(' ', '-')}-{'0' * 24}"
        if slug in self.collections:
            return web.json_response({"error": "This collection already exists", "slug": slug}, status=409)
        self.collections[slug] = {
            "slug": slug,
            "title": wanted["title"],
            "owner": {"name": wanted["namespace"]},
            "items": [],
            "lastUpdated": "2026-11-23T00:00:00.000Z",
            "position": 0,
            "private": wanted["private"],
            "theme": "blue",
            "upvotes": 0,
        }
        return web.json_response(self.collections[slug])

    async def get_collection(self, request: web.Request) -> web.Response:
        return web.json_response(self.collections[request.match_info["slug"]])

    async def add_item(self, request: web.Request) -> web.Response:
        """Add a repository to a collection, once."""
        held, wanted = self.collections[request.match_info["slug"]], (await request.json())["item"]
        if wanted["id"] in [item["id"] for item in held["items"]]:
            return web.json_response({"error": "Item already in collection"}, status=409)
        held["items"].append({"_id": "1", "id": wanted["id"], "type": wanted["type"], "position": len(held["items"])})
        return web.json_response(held)

    def _repo(self, request: web.Request) -> dict[str, Any]:
        return self.repos[request.match_info["repo"]]

    def _oid(self, repo: dict[str, Any], revision: str) -> str:
        for held in (repo["branches"], repo["tags"]):
            if revision in held:
                return str(held[revision])
        if revision in repo["commits"]:
            return revision
        raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _at(self, request: web.Request) -> dict[str, Any]:
        """The commit that a request's revision names."""
        repo = self._repo(request)
        found: dict[str, Any] = repo["commits"][self._oid(repo, request.match_info.get("rev", "main"))]
        return found

    def _keep(self, content: bytes) -> dict[str, Any]:
        """Keep a regular file; its entry in a tree."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        (self.folder / "objects" / oid).write_bytes(content)
        return {"oid": oid, "size": len(content)}

    def _commit(self, repo: dict[str, Any], title: str, tree: Tree, branch: str = "main") -> str:
        parent = repo["branches"].get(branch)
        number = len(repo["commits"])
        oid = hashlib.sha1(json.dumps([parent, title, tree, number], sort_keys=True).encode()).hexdigest()
        date = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000Z"
        repo["commits"][oid] = {"oid": oid, "parent": parent, "title": title, "date": date, "tree": tree}
        repo["branches"][branch] = oid
        return oid

    def _save(self) -> None:
        (self.folder / "repos.json").write_text(json.dumps(self.repos))

    async def create_repo(self, request: web.Request) -> web.Response:
        """A new repository with one commit, as the Hub makes it."""
        body = await request.json()
        name = f"{body['organization']}/{body['name']}"
        told = {"url": f"{self.endpoint}/datasets/{name}", "name": name}
        if name in self.repos:
            return web.json_response(told | {"error": "You already created this dataset repo"}, status=409)
        private = body.get("visibility") == "private" or bool(body.get("private"))
        self.repos[name] = {"private": private, "commits": {}, "branches": {}, "tags": {}, "large": []}
        attributes = "".join(f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LARGE)
        self._commit(self.repos[name], "initial commit", {".gitattributes": self._keep(attributes.encode())})
        return web.json_response(told)

    async def validate_yaml(self, request: web.Request) -> web.Response:
        """Accept a card that has YAML at its head."""
        content = (await request.json())["content"]
        errors = [] if content.startswith("---\n") else [{"message": "expected YAML between two lines of ---"}]
        return web.json_response({"errors": errors, "warnings": []}, status=400 if errors else 200)

    async def settings(self, request: web.Request) -> web.Response:
        """Change who may read."""
        self._repo(request).update(await request.json())
        return web.json_response({})

    async def refs(self, request: web.Request) -> web.Response:
        """Branches and tags."""
        repo = self._repo(request)
        shown = {
            kind: [{"name": n, "ref": f"refs/{path}/{n}", "targetCommit": oid} for n, oid in repo[kind].items()]
            for kind, path in (("branches", "heads"), ("tags", "tags"))
        }
        return web.json_response(shown | {"converts": []})

    async def info(self, request: web.Request) -> web.Response:
        commit, repo = self._at(request), self._repo(request)
        name = request.match_info["repo"]
        listed = [{"rfilename": path} for path in sorted(commit["tree"])]
        facts = {"_id": name, "id": name, "author": name.split("/")[0], "sha": commit["oid"], "siblings": listed}
        state = {
            "private": repo["private"],
            "gated": repo.get("gated", False),
            "disabled": False,
            "tags": [],
            "downloads": 0,
        }
        return web.json_response(facts | state | {"likes": 0, "lastModified": commit["date"]})

    async def tree(self, request: web.Request) -> web.Response:
        """Files and folders below a path, a page at a time."""
        commit = self._at(request)
        below = request.match_info.get("path", "").strip("/")
        deep, expand = _true(request.query.get("recursive")), _true(request.query.get("expand"))
        listed: dict[str, dict[str, Any]] = {}
        for path, entry in sorted(commit["tree"].items()):
            if below and not path.startswith(below + "/"):
                continue
            parts = path[len(below) + 1 if below else 0 :].split("/")
            for depth in range(1, len(parts) if deep else min(2, len(parts))):
                folder = "/".join([*([below] if below else []), *parts[:depth]])
                listed.setdefault(folder, {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0})
            if deep or len(parts) == 1:
                listed[path] = _shown(path, entry)
        if not listed and below:
            raise Refused(404, "EntryNotFound", f"{below} does not exist")
        start = int(request.query.get("cursor", "0"))
        page = list(listed.values())[start : start + PAGE]
        if expand:
            page = [entry | _expanded(commit) for entry in page]
        headers = {}
        if start + PAGE < len(listed):
            following = request.url.update_query(cursor=start + PAGE)
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response(page, headers=headers)

    async def paths_info(self, request: web.Request) -> web.Response:
        """The entries of some paths; those that are not there are left out."""
        commit = self._at(request)
        body = await (request.json() if request.content_type == "application/json" else request.post())
        paths = body["paths"] if isinstance(body["paths"], list) else body.getall("paths")  # type: ignore[union-attr]
        found = []
        for path in paths:
            if path in commit["tree"]:
                found.append(_shown(path, commit["tree"][path]))
            elif any(name.startswith(f"{path}/") for name in commit["tree"]):
                found.append({"type": "directory", "path": path, "oid": "0" * 40, "size": 0})
        return web.json_response([entry | _expanded(commit) for entry in found])

    async def list_commits(self, request: web.Request) -> web.Response:
        """The commits of `main`, newest first."""
        shown = [
            {"id": c["oid"], "title": c["title"], "message": "", "date": c["date"], "authors": []}
            for c in self.commits(request.match_info["repo"])
        ]
        return web.json_response(shown)

    async def xet_token(self, request: web.Request) -> web.Response:
        """Where Xet's chunks go: a folder of this machine."""
        if not self.xet:
            raise Refused(404, "", "no Xet here; set HF_HUB_DISABLE_XET=1")
        url = f"local://{(self.folder / 'xet').absolute()}"
        headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": "4102444800"}
        return web.json_response({"casUrl": url, "accessToken": "xet", "exp": 4102444800}, headers=headers)

    async def preupload(self, request: web.Request) -> web.Response:
        """Which files are large, and what stands at their paths now."""
        tree = self._at(request)["tree"]
        shown = []
        for file in (await request.json())["files"]:
            path = file["path"]
            large = path.endswith(LARGE) or file["size"] > MOST_REGULAR_BYTES
            held = tree.get(path, {})
            oid = held.get("lfs", {}).get("oid") or held.get("oid")
            shown.append({"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": oid})
        return web.json_response({"files": shown})

    async def lfs_batch(self, request: web.Request) -> web.Response:
        """Where to put the large files that are not here yet."""
        objects = []
        for wanted in (await request.json())["objects"]:
            told = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self._repo(request)["large"]:
                href = f"{self.endpoint}/lfs/{request.match_info['repo']}/{wanted['oid']}"
                told["actions"] = {"upload": {"href": href}}
            objects.append(told)
        return web.json_response({"transfer": "basic", "objects": objects})

    async def put(self, request: web.Request) -> web.Response:
        """Keep a large file whose bytes are what its name says."""
        content = await request.read()
        oid = request.match_info["oid"]
        if hashlib.sha256(content).hexdigest() != oid:
            raise Refused(400, "", "the bytes do not have that SHA-256")
        self.put_bytes += len(content)
        (self.folder / "objects" / oid).write_bytes(content)
        self._repo(request)["large"].append(oid)
        return web.Response()

    async def commit(self, request: web.Request) -> web.Response:
        """Change a branch at once, or not at all."""
        lines = [json.loads(line) for line in (await request.text()).splitlines()]
        head, changes = lines[0]["value"], lines[1:]
        repo, branch = self._repo(request), request.match_info["rev"]
        if head.get("parentCommit") not in (None, repo["branches"][branch]):
            raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
        tree = dict(self._at(request)["tree"])
        for change in changes:
            self._change(repo, tree, change["key"], change["value"])
        oid = self._commit(repo, head["summary"], tree, branch)
        url = f"{self.endpoint}/datasets/{request.match_info['repo']}/commit/{oid}"
        return web.json_response({"success": True, "commitOid": oid, "commitUrl": url, "pullRequestUrl": None})

    def _change(self, repo: dict[str, Any], tree: Tree, kind: str, value: dict[str, Any]) -> None:
        path = value["path"]
        match kind:
            case "file":
                tree[path] = self._keep(base64.b64decode(value["content"]))
            case "lfsFile":
                oid, size = value["oid"], value["size"]
                if not self.xet and oid not in repo["large"]:
                    raise Refused(400, "", f"{path}: the large file {oid} was not uploaded")
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()
                lfs = {"oid": oid, "size": size, "pointerSize": len(pointer)}
                sha1 = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()
                tree[path] = {"oid": sha1, "size": size, "lfs": lfs}
            case "deletedFile":
                if tree.pop(path, None) is None:
                    raise Refused(404, "EntryNotFound", "A file with this name doesn't exist")
            case _:
                raise Refused(400, "", f"unknown change {kind}")

    async def branch(self, request: web.Request) -> web.Response:
        """A new branch, from `main` on."""
        repo, name = self._repo(request), request.match_info["rev"]
        if name in repo["branches"]:
            raise Refused(409, "", f"Reference already exists: refs/heads/{name}")
        repo["branches"][name] = repo["branches"]["main"]
        return web.json_response({})

    async def tag(self, request: web.Request) -> web.Response:
        """Name a commit."""
        repo, name = self._repo(request), (await request.json())["tag"]
        if name in repo["tags"]:
            raise Refused(409, "", f"Tag {name} already exists")
        repo["tags"][name] = self._at(request)["oid"]
        return web.json_response({})

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        """A file, or a range of its bytes."""
        commit, name = self._at(request), request.match_info["repo"]
        if self.repos[name].get("gated") and WRITER not in (token := request.headers.get("Authorization", "")):
            text = f"Access to dataset {name} is restricted and you are not in the authorized list."
            raise Refused(403 if token else 401, "GatedRepo", text)
        entry = commit["tree"].get(request.match_info["path"])
        headers = {"X-Repo-Commit": commit["oid"], "Accept-Ranges": "bytes"}
        if entry is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        oid = entry.get("lfs", {}).get("oid") or entry["oid"]
        held = self.folder / "objects" / oid
        if not held.is_file():
            raise Refused(404, "EntryNotFound", "this file lies in Xet's chunks only")
        headers |= {"ETag": f'"{oid}"', "X-Linked-Size": str(entry["size"]), "X-Linked-Etag": f'"{oid}"'}
        content, status = held.read_bytes(), 200
        part = request.http_range
        if part.start is not None or part.stop is not None:
            start, stop, _ = part.indices(len(content))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            content, status = content[start:stop], 206
        return web.Response(body=content, status=status, headers=headers, content_type="application/octet-stream")


class Refused(Exception):
    """An answer with a status other than 200 and the Hub's error headers."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


def _true(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true")


def _shown(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "file", "path": path, **entry}


def _expanded(commit: dict[str, Any]) -> dict[str, Any]:
    last = {"id": commit["oid"], "title": commit["title"], "date": commit["date"]}
    safe = {"status": "safe", "avScan": None, "pickleImportScan": None}
    return {"lastCommit": last, "securityFileStatus": safe}


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--xet", action="store_true")
    options = parser.parse_args()
    server = HubServer(options.folder, xet=options.xet)
    server.port = options.port
    with server:
        print(f"port={server.port}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
