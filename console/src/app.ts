// What all pages share: the user, the way to another page, the keys.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { User } from "./api";

export interface App {
  user: User;
  /** The server has no user, and anybody on its machine is its administrator. */
  isDevelopment: boolean;
  logOut: () => void;
}

export const AppContext = createContext<App>({
  user: { id: "", roles: [] },
  isDevelopment: false,
  logOut: () => {},
});
export const useApp = () => useContext(AppContext);

/** The page and its parameters: `#/documents/default/_default/_default?prefix=a`. */
export interface Route {
  page: string;
  parts: string[];
  query: URLSearchParams;
}

export function route(hash: string): Route {
  const [where = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const decode = (part: string) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  const [page = "", ...parts] = where.split("/").filter(Boolean).map(decode);
  return { page, parts, query: new URLSearchParams(query) };
}

export function link(page: string, parts: string[] = [], query: Record<string, string> = {}): string {
  const filled = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(filled).toString();
  return "#/" + [page, ...parts].map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

export const go = (hash: string) => {
  location.hash = hash;
};
