// Package hostnode finds the machine's node installation, which lies in a user's
// folder as often as in the system's.
package hostnode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Prefix finds the host's node. The prefix is empty when it lies in a folder
// that sandboxes see anyway, and when there is none or none that can be shown; the
// text says which.
func Prefix() (prefix, what string) {
	name, err := exec.LookPath("node")
	if err != nil {
		return "", "no node in PATH"
	}
	name, err = filepath.EvalSymlinks(name)
	if err != nil {
		return "", fmt.Sprintf("node: %v", err)
	}
	for _, dir := range []string{"/usr/", "/bin/", "/sbin/", "/lib/"} {
		if strings.HasPrefix(name, dir) {
			return "", name
		}
	}
	prefix = filepath.Dir(filepath.Dir(name))
	entries, err := os.ReadDir(prefix)
	if err != nil {
		return "", fmt.Sprintf("node at %s: %v", name, err)
	}
	// An installation and nothing else: a folder that holds more (a home folder,
	// /opt itself, somebody's ~/.local) would show code what is none of its business.
	programs, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return "", fmt.Sprintf("node at %s: %v", name, err)
	}
	for _, list := range []struct {
		entries []os.DirEntry
		known   []string
	}{
		{entries, []string{"bin", "include", "lib", "share", "etc", "CHANGELOG.md", "LICENSE", "README.md"}},
		{programs, []string{"node", "nodejs", "npm", "npx", "corepack", "yarn", "yarnpkg", "pnpm", "pnpx", "tsc", "tsserver"}},
	} {
		for _, entry := range list.entries {
			if !slices.Contains(list.known, entry.Name()) {
				return "", fmt.Sprintf("node at %s: not shown to sandboxes, because %s holds more than node (%.60q)", name, prefix, entry.Name())
			}
		}
	}
	if filepath.Base(filepath.Dir(name)) != "bin" || strings.Count(prefix, "/") < 2 {
		return "", fmt.Sprintf("node at %s: not in the bin folder of an installation", name)
	}
	return prefix, name
}
