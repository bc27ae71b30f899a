//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/record"
)

func newProject(std *streams) *cobra.Command {
	var s settings
	var c callFlags
	var steps, artifacts []string
	cmd := &cobra.Command{
		Use:   "project DIR --step COMMAND [--step …] [--artifact PATH …]",
		Short: "Run shell steps over the files of a folder, in a sandbox of its own",
		Long: `Run shell steps over the files of a folder, in a sandbox of its own.

All regular files below DIR are sent, but for a .git folder; anything else there,
and a file that is not UTF-8 text, is an error. Steps run one after the other
until one fails. Artifacts are files to fetch afterwards, by their path from DIR.

` + exitHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			req, err := c.request()
			if err != nil {
				return err
			}
			if len(steps) == 0 {
				return errors.New("--step: none given")
			}
			files, err := readFolder(args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			req.Project = &record.ProjectRun{Files: files, Steps: steps, Artifacts: artifacts}
			asked, refused := call.New(req)
			return s.single(cmd.Context(), std, asked, refused, c.show)
		},
	}
	s.add(cmd)
	s.addSingle(cmd)
	c.add(cmd)
	cmd.Flags().StringArrayVar(&steps, "step", nil, "shell `command` to run; may be given up to 20 times")
	cmd.Flags().StringArrayVar(&artifacts, "artifact", nil, "`path` of a file to fetch; may be given up to 100 times")
	return cmd
}

// Bounds of what is read of a folder, above those of a call, which name the limit
// that was passed.
const (
	maxFolderFiles = 1000
	maxFolderBytes = 8 << 20
)

// readFolder reads the files below a folder. Nothing outside is reached, whatever
// happens to the folder meanwhile.
func readFolder(dir string) ([]record.ProjectFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, cli.FileError(err)
	}
	defer root.Close()
	var files []record.ProjectFile
	room := int64(maxFolderBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", path, cli.FileError(err))
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s: not a regular file", path)
		case len(files) == maxFolderFiles:
			return fmt.Errorf("more than %d files", maxFolderFiles)
		}
		file, err := root.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, cli.FileError(err))
		}
		defer file.Close()
		content, err := io.ReadAll(io.LimitReader(file, room+1))
		room -= int64(len(content))
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", path, cli.FileError(err))
		case room < 0:
			return fmt.Errorf("more than %d bytes of files", maxFolderBytes)
		case !utf8.Valid(content):
			return fmt.Errorf("%s: not UTF-8 text", path)
		}
		files = append(files, record.ProjectFile{Path: path, Content: string(content)})
		return nil
	})
	return files, err
}
