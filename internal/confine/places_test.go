//go:build linux

package confine

import (
	"slices"
	"testing"
)

// A disk at /, a part of it at /mnt/part and in a container's /data, another one at
// /srv with a space in a folder's name.
const mountinfo = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 8:1 /home/u/work /mnt/part rw,relatime shared:7 - ext4 /dev/sda1 rw
31 22 8:1 /home /data/homes rw,relatime - ext4 /dev/sda1 rw
32 22 8:2 / /srv rw,relatime - ext4 /dev/sdb1 rw
33 22 8:2 /a\040b /opt/a\040b rw,relatime - ext4 /dev/sdb1 rw
34 22 0:40 / /proc rw - proc proc rw
`

// TestPlaces: a folder is found wherever its file system, or a part of it, is
// mounted.
func TestPlaces(t *testing.T) {
	for dir, want := range map[string][]string{
		"/home/u/work":      {"/data/homes/u/work", "/home/u/work", "/mnt/part"},
		"/home/u/work/keys": {"/data/homes/u/work/keys", "/home/u/work/keys", "/mnt/part/keys"},
		"/home/u":           {"/data/homes/u", "/home/u", "/mnt/part"}, // and a part of it
		"/home/v":           {"/data/homes/v", "/home/v"},
		"/mnt/part/keys":    {"/data/homes/u/work/keys", "/home/u/work/keys", "/mnt/part/keys"},
		"/srv/a b/k":        {"/opt/a b/k", "/srv/a b/k"},
		"/opt/a b/k":        {"/opt/a b/k", "/srv/a b/k"},
		"/srv/other":        {"/srv/other"},
		"/homeless":         {"/homeless"},
		"/proc/x":           {"/proc/x"},
	} {
		have := places(dir, mountinfo)
		slices.Sort(have)
		if have = slices.Compact(have); !slices.Equal(have, want) {
			t.Errorf("%s: have %q, want %q", dir, have, want)
		}
	}
}

// TestMountinfoLines: lines of another form are no mounts.
func TestMountinfoLines(t *testing.T) {
	for _, text := range []string{"", "\n", "a b c d", "22 1 8:1 /", "\x00"} {
		if list := mountPoints(text); len(list) > 0 {
			t.Errorf("%q: have %v", text, list)
		}
	}
}
