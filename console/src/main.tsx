// The console: login, the frame with its navigation, and the page that the address names.

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, logIn, logOut, onRefused, resume, send, type User } from "./api";
import { AppContext, go, link, route, type Route } from "./app";
import { forget } from "./figures";
import { isAdmin } from "./rights";
import { PasswordDialog } from "./password";
import { mayResume, prepare, takeLogin } from "./reload";
import { Busy, Dialog, Failure, Messages, asApiError, clearMessages, failed } from "./ui";
import { BucketsPage } from "./pages/buckets";
import { ChangesPage } from "./pages/changes";
import { DocumentsPage } from "./pages/documents";
import { NodesPage } from "./pages/nodes";
import { OverviewPage } from "./pages/overview";
import { QueryPage, forgetStatement } from "./pages/query";
import { SlowPage } from "./pages/slow";
import { UsersPage } from "./pages/users";
import { forgetDraft } from "./pages/value";
import { forgetHistory } from "./query/kept";

interface PageEntry {
  name: string;
  title: string;
  view: (props: { route: Route }) => preact.JSX.Element | null;
}

const PAGES: PageEntry[] = [
  { name: "overview", title: "Overview", view: OverviewPage },
  { name: "buckets", title: "Buckets", view: BucketsPage },
  { name: "documents", title: "Documents", view: DocumentsPage },
  { name: "query", title: "Query", view: QueryPage },
  { name: "changes", title: "Live changes", view: ChangesPage },
  { name: "users", title: "Users and roles", view: UsersPage },
  { name: "nodes", title: "Nodes and vbuckets", view: NodesPage },
  { name: "slow", title: "Slow operations", view: SlowPage },
];

interface About {
  version: string;
  development: boolean;
}

type Theme = "" | "light" | "dark";
const THEME = "oribi-console-theme";

function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "");
  const change = (theme: Theme) => {
    localStorage.setItem(THEME, theme);
    setTheme(theme);
  };
  document.documentElement.dataset["theme"] = theme;
  return [theme, change];
}

function ThemeChoice() {
  const [theme, change] = useTheme();
  return (
    <select
      class="theme"
      aria-label="Colours"
      value={theme}
      onChange={(event) => change((event.target as HTMLSelectElement).value as Theme)}
    >
      <option value="">System colours</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}

function Login({ about, enter }: { about?: About; enter: (user: User) => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      enter(await logIn(name, password));
    } catch (failure) {
      setError(asApiError(failure).message);
      setBusy(false);
    }
  };
  const text = (set: (value: string) => void) => (event: Event) => set((event.target as HTMLInputElement).value);
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1>Oribi console</h1>
        <label for="name">User</label>
        <input id="name" autocomplete="username" required autofocus value={name} onInput={text(setName)} />
        <label for="password">Password</label>
        <input
          id="password"
          type="password"
          autocomplete="current-password"
          required
          value={password}
          onInput={text(setPassword)}
        />
        {error && (
          <p class="failure" role="alert">
            {error}
          </p>
        )}
        <button class="primary" disabled={isBusy}>
          {isBusy ? "Logging in…" : "Log in"}
        </button>
        {about?.development && (
          <p class="hint">
            This server is in development mode: the user is <code>Administrator</code>, the password{" "}
            <code>password</code>. <code>oribi user create</code> ends that.
          </p>
        )}
      </form>
    </main>
  );
}

const KEYS: [string, string][] = [
  ["/", "Go to the search field of the page"],
  ["g then 1 – 8", "Open a page, in the order of the navigation"],
  ["Ctrl Enter", "Save the document, or run the query"],
  ["Escape", "Close a dialog"],
  ["?", "Show these keys"],
];

function KeyHelp({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="hint">
        The console contains software of others: <a href="/console/licenses.txt">licences</a>.
      </p>
    </Dialog>
  );
}

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");

function useKeys(pages: PageEntry[], showHelp: () => void) {
  useEffect(() => {
    let isGoing = false;
    const press = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      const page = isGoing ? pages[Number(event.key) - 1] : undefined;
      isGoing = event.key === "g";
      if (page) go(link(page.name));
      else if (event.key === "?") showHelp();
      else if (event.key === "/") {
        const search = document.querySelector<HTMLElement>("[data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [pages.length]);
}

interface Offered {
  query: boolean;
  users: boolean;
}

/** Whether the server has routes that not every version or user has; `undefined` until it answers. */
function useOffered(user: User) {
  const [offered, setOffered] = useState<Offered>();
  useEffect(() => {
    const has = async (method: string, target: string) => {
      const response = await send(method, target).catch(() => undefined);
      return response !== undefined && response.status !== 404 && response.status !== 403;
    };
    const users = isAdmin(user) ? has("GET", "/settings/rbac/users") : Promise.resolve(false);
    Promise.all([has("POST", "/query/service"), users]).then(([query, users]) => setOffered({ query, users }));
  }, [user]);
  return offered;
}

/** The page of an address that names none, or one that this user or server does not have. */
function NoPage({ name, isKnown }: { name: string; isKnown: boolean }) {
  return (
    <>
      <h1>No such page</h1>
      <p>
        {isKnown
          ? "Your user has no right to this page, or this server does not have it."
          : `The console has no page “${name}”.`}{" "}
        <a href={link("overview")}>Open the overview</a>
      </p>
    </>
  );
}

function Frame({ user, about, leave }: { user: User; about?: About; leave: () => void }) {
  const [at, setAt] = useState(() => route(location.hash));
  const [hasHelp, setHelp] = useState(false);
  const [hasPassword, setPassword] = useState(false);
  const heading = useRef<HTMLElement>(null);
  const offered = useOffered(user);
  const pages = useMemo(
    () =>
      PAGES.filter(
        ({ name }) =>
          (name !== "slow" || isAdmin(user)) &&
          (name !== "query" || offered?.query) &&
          (name !== "users" || offered?.users),
      ),
    [user, offered],
  );
  useKeys(pages, () => setHelp(true));
  useEffect(() => {
    const move = () => {
      setAt((before) => {
        const next = route(location.hash);
        if (next.page !== before.page) {
          heading.current?.focus({ preventScroll: true });
          scrollTo(0, 0);
        }
        return next;
      });
    };
    window.addEventListener("hashchange", move);
    return () => window.removeEventListener("hashchange", move);
  }, []);
  const page = at.page === "" ? pages[0] : pages.find(({ name }) => name === at.page);
  const isKnown = PAGES.some(({ name }) => name === at.page);
  const title = page?.title ?? "No such page";
  document.title = `${title} – Oribi console`;
  const app = useMemo(
    () => ({ user, isDevelopment: about?.development ?? false, logOut: leave }),
    [user, about],
  );
  return (
    <AppContext.Provider value={app}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), heading.current?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <span class="brand">Oribi</span>
        <span class="muted">{about?.version}</span>
        <span class="grow" />
        <ThemeChoice />
        <button type="button" class="plain" onClick={() => setHelp(true)}>
          Keys
        </button>
        <span class="muted user">{user.id}</span>
        {about && !about.development && (
          <button type="button" class="plain" onClick={() => setPassword(true)}>
            Password
          </button>
        )}
        <button type="button" onClick={leave}>
          Log out
        </button>
      </header>
      <nav aria-label="Pages">
        <ul>
          {pages.map(({ name, title }) => (
            <li key={name}>
              <a href={link(name)} aria-current={name === page?.name ? "page" : undefined}>
                {title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main" ref={heading} tabIndex={-1} aria-label={title}>
        {page && <page.view route={at} key={page.name} />}
        {!page && (offered || !isKnown ? <NoPage name={at.page} isKnown={isKnown} /> : <Busy />)}
      </main>
      {hasHelp && <KeyHelp close={() => setHelp(false)} />}
      {hasPassword && <PasswordDialog user={user.id} isOwn close={() => setPassword(false)} />}
    </AppContext.Provider>
  );
}

/** Continues the login of the page before this one in the tab. True while that is not decided. */
function useResume(enter: (user: User) => void): boolean {
  const [isResuming, setResuming] = useState(mayResume);
  useEffect(() => {
    if (!isResuming) return;
    const run = async () => {
      const login = await takeLogin();
      if (login !== null) enter(await resume(login));
    };
    run()
      // A login that ended in the time between is no error; the user logs in again.
      .catch((failure) => asApiError(failure).status === 401 || failed(failure))
      .finally(() => setResuming(false));
  }, []);
  return isResuming;
}

function Console() {
  const [user, setUser] = useState<User>();
  const [about, setAbout] = useState<About>();
  const [error, setError] = useState<Error>();
  useTheme();
  useEffect(() => {
    // The first user ends the development mode.
    get<About>("/console/about.json").then(setAbout, setError);
  }, [user]);
  const enter = (user: User) => {
    clearMessages();
    setUser(user);
    void prepare();
  };
  const isResuming = useResume(enter);
  const leave = () => {
    logOut();
    forget();
    forgetDraft();
    forgetHistory();
    forgetStatement();
    setUser(undefined);
  };
  onRefused(() => {
    if (!user) return;
    leave();
    failed("The server no longer accepts this login. Log in again.");
  });
  return (
    <>
      {error && <Failure error={asApiError(error)} />}
      {user && <Frame user={user} about={about} leave={leave} />}
      {!user && isResuming && (
        <main class="login">
          <Busy text="Logging in…" />
        </main>
      )}
      {!user && !isResuming && <Login about={about} enter={enter} />}
      <Messages />
    </>
  );
}

const place = document.getElementById("app")!;
place.replaceChildren();
render(<Console />, place);
